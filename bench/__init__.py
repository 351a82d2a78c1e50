"""What it costs: server CPU per unit of work, and ratios to a yardstick of the same run."""
