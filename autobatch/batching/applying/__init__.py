"""One torch callable applied to operands of which some differ by thread, as a loop would."""
