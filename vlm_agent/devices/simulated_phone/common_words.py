"""Words that stand on phones' screens anywhere, beyond those of the simulated phone itself; all in lower case.

Few: a small model learns to read a word as one picture, and each takes its share of the screens that are drawn.
"""

_TEXT = """
    about accept access account action active add address agree album all allow also always and answer any app apply
    art at audio back balance bar best bill birthday block bonus book box browse business buy by call cancel card care
    cart category change chat check choose city clear close cloud code colour comment confirm connect contact continue
    copy country create credit custom daily data date day deal default delete delivery detail device dial discount
    discover dish document done down download draft edit email empty enable end enter error event every exit explore
    family fast favourite feed field file fill filter find first fit food for free friend from full fun game get gift
    go good group guest guide help here hide high history home hour how image in index info inside install invite item
    join journey just keep key language large last later learn left less level library like limit line link list listen
    live load local log long low make manage many map mark media meet member menu message mile minute missed mobile more
    morning most move my name near never new next night no none not note now number of off offer office ok old on once
    one only open option or order other our out over page paint past pause pay people person pet picture pin place plan
    play please plus popular post power present preview price print profile public quick quiet rate read ready recent
    record refresh register remind remove rename repeat reply report reset rest result return review right room route
    rule safe sale same save say scan score screen search seat select sell send series service set shape share ship
    short show sign size skip smart social sort sound special speed sport star start state stay step stop street style
    submit support switch table tag take talk tap task team tell terms test text that the this ticket time tip title to
    today tomorrow tool top total track traffic trial trip try turn two type undo unlock until up update upgrade upload
    use user value version video view visit voice volume wait walk want warm watch water way week welcome what where
    wide win with without word work year yes you your zoom
"""

COMMON_WORDS = tuple(_TEXT.split())
