"""The learned predictor on the command line: collect rows, train on them, and use what was learned."""
