"""Datasets: texts and images of the catalogue, and generated toy tasks, each with a fixed held-out part."""
