"""`fairring check`: this machine, this installation and, between ranks, the links; one report with findings."""
