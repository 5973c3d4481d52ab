"""The alphabets: amino acids and what else an alignment's cell may hold."""

RESIDUES = "ARNDCQEGHILKMFPSTWYV"  # AlphaFold's order, numbers 0 to 19
UNKNOWN = 20  # X, a residue that is none of the twenty
GAP = 21
MASK = 22  # a cell hidden by the masked-MSA corruption

MSA_ALPHABET = RESIDUES + "X-"  # what a reader may put in an alignment, numbers 0 to 21
N_MSA_LETTERS = len(MSA_ALPHABET)
N_MSA_TOKENS = N_MSA_LETTERS + 1  # with MASK

# Letters outside the alphabet, as HHblits and AlphaFold read them.
AMBIGUOUS = {"B": "D", "J": "X", "O": "X", "U": "C", "Z": "E"}

CONTACT_DISTANCE = 8.0  # Angstrom: two C-beta atoms (C-alpha of glycine) closer than this are a contact
MIN_SEPARATION = 6  # residues along the chain: contacts of nearer pairs are not scored
