module flash

go 1.26.0

require (
	github.com/klauspost/compress v1.20.4
	github.com/zeebo/blake3 v0.2.4
	golang.org/x/sync v0.25.0
	golang.org/x/sys v0.50.0
)

require github.com/klauspost/cpuid/v2 v2.0.12 // indirect
