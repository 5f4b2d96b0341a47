"""Drawing on screens: actions, elements, contact sheets and animations."""
