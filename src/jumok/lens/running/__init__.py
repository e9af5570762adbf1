"""What surrounds a run of a lens: changes of the model that only this run sees, and progress that can stop it."""
