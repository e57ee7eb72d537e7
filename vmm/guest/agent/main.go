// Command agent is what runs inside a guest: its init, and the far end of package guest's protocol.
package main

func main() { panic("contract") }
