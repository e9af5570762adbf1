"""Audio: read audio files safely, as samples of one channel at 16 kHz."""
