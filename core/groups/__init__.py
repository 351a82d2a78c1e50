"""Consumer groups: the pure state machine, their registry, commits, and members that the broker hosts."""
