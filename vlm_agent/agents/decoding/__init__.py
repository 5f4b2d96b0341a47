"""Greedy decoding of all steps of many episodes after one prefill, free or constrained to the action language."""
