"""`fairring doctor`: this machine, this installation and a trial of both, as text for a bug report."""
