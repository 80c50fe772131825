"""The shell of Equipoise: everything that touches a process, a socket, a clock or a database."""
