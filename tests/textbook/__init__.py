"""Programs as textbooks and public code have them, that the loop over a batch is asked of."""
