"""Sealed audit: an extension that makes edits of audit events detectable.

chain.py has the hash chain and its check, seal.py the pass that writes seals, export.py the copy
for an auditor. operator.py and commands.py add the methods and commands of ``audit``.
"""
