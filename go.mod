module github.com/hostfacts/hostfacts

go 1.26
