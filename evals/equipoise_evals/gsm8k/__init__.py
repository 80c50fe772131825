"""GSM8K: the questions, the prompts, the pass over them and the grade of each answer."""
