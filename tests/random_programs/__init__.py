"""Random programs: from a seed a world of ranks and a program of c10d's calls, played on real processes and checked."""
