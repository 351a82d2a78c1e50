"""One scenario file per verb, each run over every door that has the verb."""
