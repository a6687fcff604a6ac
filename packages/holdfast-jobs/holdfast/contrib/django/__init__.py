"""Holdfast in Django: a backend of ``django.tasks``, a command and read-only admin pages.

Add ``holdfast.contrib.django`` to INSTALLED_APPS.
"""
