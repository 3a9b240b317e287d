"""What check_nvfp4.py is made of: reading, the rules, decoding, and the comparison to a source.

Written from the published formats, with none of dsv4's code, so that it can disagree with it.
"""
