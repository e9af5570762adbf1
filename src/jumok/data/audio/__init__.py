"""Audio: read audio files safely, compute log-mel spectrograms, and synthesise speech."""
