"""Third-party programs, unchanged, on gloo and on fairring. `make test-libraries` installs them and runs this."""
