"""What things cost, side by side with a peer in one run. Never part of the tests: a shared machine has no right speed.

`python -m bench` runs all of it; `docs/benchmarks.md` says what each benchmark means and what it last showed.
"""
