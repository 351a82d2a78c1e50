"""One scenario file per verb, each run over every client that has the verb."""
