from holdfast.cli import script

script()
