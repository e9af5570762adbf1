"""Default settings that Python functions and the command line share.

This module imports nothing, so that ``jumok --help`` can show the defaults without importing torch.
"""

NEW_TOKENS = 128  # jumok run: the largest number of new tokens
BEAMS = 1  # jumok run: beams of beam search; 1 = no beam search
ANSWER_TOKENS = 32  # jumok look, jumok effect: tokens of an answer; a map of more is hard to read
