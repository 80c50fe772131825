"""The core of Equipoise: what a comparison is, how it is measured and how it is judged."""
