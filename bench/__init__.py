"""What it costs: server CPU per unit of work, so that a busy machine does not lie. `python -m bench --help`."""
