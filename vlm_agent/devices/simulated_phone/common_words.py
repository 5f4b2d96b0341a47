"""Words that stand on phones' screens anywhere, beyond those of the simulated phone itself; all in lower case."""

_TEXT = """
    about above accept access account action active activity add address adult advanced after again agree air album
    all allow alone also always amount answer any app apply area around arrive article artist ask at audio auto
    available back bad balance band bar basic beach because become bed before begin below best better big bill
    birthday block blog board body boat bonus border both bottom box brand bread break bright bring brother browse
    building bus business but buy by cake call cancel card care cart case cash cat catch category change charge chat
    cheap check child choose church circle city class clean clear clock close closed clothes cloud club code cold
    colour come comment common company compare complete computer confirm connect contact continue control cook copy
    corner cost country course create credit crop cup current custom customer daily dance dark data date day deal
    dear decline default delay delete delivery desk detail device dial different direct discount discover distance
    document dog done door double down download draft draw dream dress drive dry due earn earth easy eat edit effect
    email empty enable end enter error evening event every exit expert explore export extra face fact family far
    fast favourite feed feel fee few field file fill filter final find fine finish fire first fish fit fix flat
    flower fly follow food foot for forest forget form forward free fresh friend from front fruit full fun future
    game garden gate general get gift girl give glass go gold good great ground group grow guest guide hair half
    hall hand happy hard hat have head hear heart heat heavy hello help here hide high hill home horse hot hour
    house how idea image import important in include index info inside install invite island item job join journey
    jump just keep key kind king kitchen know lake land large last late later latest learn leave left legal less let
    letter level library licence life lift like limit line link list listen little live load local lock log long
    look lost love low lunch mail main make manage many map mark market match meal mean media medium meet member
    menu message middle milk mind minute miss mobile model modern moment money month moon more morning most mountain
    move movie much my name near need never new next nice night no none normal north not note nothing now number of
    offer office often oil old on once one online only open option or order other our out over own page paint pair
    paper parent park part pass past pause pay people percent person pet photo pick picture piece place plan plant
    play please plus point policy popular post power present press price print private profile public pull push
    quality question quick quiet race rain read ready real reason receive recent record refresh register reject
    remember remove rename repeat reply report reset rest result resume return review rich ride right ring river
    road rock roll room round rule run safe sale same save say scan scene science screen sea season seat second
    secure see select sell send series service session set shape share she ship short show sign silver simple single
    sister site size skip sky sleep slow small smart smile snow social soft some song soon sort sound south space
    speak special speed sport spring stairs stand star start state station stay step still stock stone stop store
    storm story street strong student study style submit subscribe sugar support sure sweet swim switch table tag
    take talk tall tap task taste team tell terms test text thank that theatre theme then there thing this ticket
    tidy time tip title to today together tomorrow tonight tool top total touch tour town toy track trade traffic
    translate travel tree trial trip true trust try turn two type under unlock until up update upgrade upload use
    user value version very view village visit voice volume wait wake walk wall want warm wash watch water way wear
    week welcome west what wheel when where white who wide wild win wind window winter wish with without wonder wood
    word work world write wrong year yes yesterday you young your zone zoom
"""

COMMON_WORDS = tuple(_TEXT.split())
