"""The version of this program, as the command, the API and the OpenAPI document say it."""

# The same as in pyproject.toml; a test compares them. Reading it from the installed metadata costs 20 ms of
# every start.
VERSION = "0.1.0"
