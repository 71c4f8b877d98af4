"""What each rank reports when something goes wrong, played on an emulated cluster: programs, cases, and their table."""
