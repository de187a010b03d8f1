"""The intermediate representation: records, operation table, printer, verifier, liveness."""
