"""Each rank's report when something goes wrong, played on an emulated cluster: programs, cases, and their table."""
