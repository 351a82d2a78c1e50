"""The one facade that every door calls."""
