"""Mutation testing: small changes of the code, one at a time, and the tests that notice them. Run by hand."""
