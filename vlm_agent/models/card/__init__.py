"""The model card of a run or a merged checkpoint, README.md with the Hub's metadata, ready for `hf upload`.

The same text lies in the folder and in its model/: either may be uploaded. No digest of a run covers it.
"""
