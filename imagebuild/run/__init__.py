"""Making it so: the schedule of builds, smoke tests and pushes, and the evidence they leave."""
