module flash

go 1.26.0
