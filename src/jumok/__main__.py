from jumok.cli import main

main()
