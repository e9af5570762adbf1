"""Pictures of audio: its spectrogram, its words, and where an attention listens."""
