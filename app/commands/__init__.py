"""The command line beside `serve`: what one reaches for at 3 a.m. It knows the HTTP API alone."""
