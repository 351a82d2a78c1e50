"""The version of this program, as the package, the command, the API and the OpenAPI document say it."""

# The one place: pyproject.toml takes it from here. Reading it from the installed metadata costs 20 ms of every
# start.
VERSION = "0.1.0"
