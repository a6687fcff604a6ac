"""Benchmarks beside other job systems: they and Holdfast take turns on one machine.

    python -m bench.peers --help

``measures`` says what one turn is, ``contender`` runs one job system, ``adapter`` is what its
processes execute, ``report`` writes bench/RESULTS.md.
"""
