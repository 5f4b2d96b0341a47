"""Greedy decoding of all steps of many episodes after one prefill, optionally constrained to the action language."""
