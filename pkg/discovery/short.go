package discovery

import "slices"

// shortPrograms are those of the texts for agents: eight lines each.
type shortPrograms struct{ TypeScript, Python snippet }

func shortProgramsOf(s Site) (shortPrograms, error) {
	list := snippetList()
	for i, p := range list {
		switch p.ID {
		case "typescript":
			list[i].file = "short.mts"
		case "python":
			list[i].file = "short.py"
		}
	}
	list = slices.DeleteFunc(list, func(p snippet) bool { return p.ID != "typescript" && p.ID != "python" })
	list, err := programs(s, list)
	if err != nil {
		return shortPrograms{}, err
	}
	return shortPrograms{list[0], list[1]}, nil
}
