"""Contacts: the mean-field DCA baseline, the precision of predicted contacts, and pictures of them."""
