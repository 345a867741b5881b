//! Analyzers of languages: words, lower case, stop words, stemming.

use frostem::Algorithm;
use tantivy::tokenizer::{Language, StopWordFilter, TextAnalyzer};

use super::filters::{Apply, Split};
use super::{light, split};

pub(super) const ENGLISH: &[&str] = &[
    "a", "an", "and", "are", "as", "at", "be", "but", "by", "for", "if", "in", "into", "is", "it", "no", "not", "of",
    "on", "or", "such", "that", "the", "their", "then", "there", "these", "they", "this", "to", "was", "will", "with",
];

/// Stop words of `cjk`: English ones and parts of addresses.
pub(super) const CJK: &[&str] = &[
    "a", "and", "are", "as", "at", "be", "but", "by", "for", "if", "in", "into", "is", "it", "no", "not", "of", "on",
    "or", "s", "such", "t", "that", "the", "their", "then", "there", "these", "they", "this", "to", "was", "will",
    "with", "www",
];

/// The library has no list for these languages.
const ARMENIAN: &str = "այդ այլ այն այս դու դուք եմ են ենք ես եք է էի էին էինք էիր էիք էր ըստ թ ի ին իսկ իր կամ համար հետ հետո մենք մեջ մի ն նա նաև նրա նրանք որ որը որոնք որպես ու ում պիտի վրա և";
const BULGARIAN: &str = "а ако ала бе без беше би бил била били било ви все всички във въпреки възможно г ги го да дали до докато дори за зад защо защото и из или им има как както като ли ме между ми много може му на над не него нея ни но о от по под при с са само се сега си след сме съм със също т тази така те тези ти то това този той тук тя у ще я";
const CATALAN: &str = "a al als amb aquest aquesta aquests aquestes aquell aquella això com d de del dels des el ella ells els em en entre era es et fer fins ha han hi ho i jo l la les li lo m mes molt més n ni no o on per pel pels però què que qui s se seu seus seva ser sense si sobre són t també tant te té tot un una uns unes us va";
const CZECH: &str = "a aby aj ale ani asi az až bez bude budem budeš by byl byla byli bylo být co což či dnes do ho i já jak jako je jeho jej její jejich jen ještě ji jiné již jsem jseš jsme jsou jste k kam kde kdo když ke která které který kteří ku ma mají mezi mi mít mně mnou můj může my na nad nám napište náš naši ne nebo nechť než nic nové o od ode on ona oni ono po pod podle pokud pouze práve pro proč proto protože první před přede přes při s se si sice strana své svých svým ta tak také takže tato te tě ten tedy tento této tím tímto to tohle toho tohoto tom tomto tomuto totiž tu tuto ty tyto u už v vám váš vaše ve více však za zda zde ze že";
const GALICIAN: &str = "a aínda alí aquel aquela aquelas aqueles aquí ao aos as así á ben cando che co coa com como con da das de del deles dende deu do dos e é el ela elas eles en era es esta está este estes eu fai foi fomos fun ha hai iso isto la las lle lles lo los mais me meu miña moi na nas nin no nos nosa noso nun nunha o os ou para pero pode pois por porque que se sen ser seu si sobre son súa tamén te ten tiven tiña ti túa un unha unhas uns vos á é ó ós";
const GREEK: &str = "ο η το οι τα του τησ των τον την και κι κ ειμαι εισαι ειναι ειμαστε ειστε στο στον στη στην μα αλλα απο για προσ με σε ωσ παρα αντι κατα μετα θα να δε δεν μη μην επι ενω εαν αν τοτε που πωσ ποιοσ ποια ποιο ποιοι ποιεσ ποιων ποιουσ αυτοσ αυτη αυτο αυτοι αυτων αυτουσ αυτεσ αυτα εκεινοσ εκεινη εκεινο οπωσ ομωσ ισωσ οσο οτι";
const INDONESIAN: &str = "ada adalah adanya agar akan aku anda antara apa apakah atas atau bagi bahwa baik banyak beberapa belum bisa boleh bukan dalam dan dapat dari daripada demi dengan di dia dua harus hanya hingga ia ini itu jadi jika juga kalau kami kamu karena ke kepada kita lagi lain lebih maka masih mereka mungkin namun oleh pada para pun saat saja sampai sangat saya sebagai sebelum secara sedang sehingga sejak seorang seperti serta setelah setiap suatu sudah supaya tanpa tapi telah tentang tentu terhadap tetapi tidak untuk walaupun yaitu yakni yang";
const IRISH: &str = "a ach ag agus an aon ar arna as b' ba beirt bhúr caoga ceathair ceathrar chomh chtó chuig chun cois céad cúig cúigear d' daichead dar de deich deichniúr den dhá do don dtí dá dár dó faoi faoin faoina faoinár fara fiche gach gan go gur haon hocht i iad idir in ina ins inár is le leis lena lenár m' mar mo mé na nach naoi naonúr ná ní níor nó nócha ocht ochtar os roimh sa seacht seachtar seachtó seasca seisear siad sibh sinn sna sé sí tar thar thú triúr trí trína trínár tríocha tú um ár é éis í ó ón óna ónár";
const LATVIAN: &str = "aiz ap apakš augš bez caur dēļ gar iekš iz kopš labad lejpus līdz no otrpus pa par pār pēc pie pirms pret priekš starp šaipus uz viņpus virs virspus zem un bet jo ja ka lai tomēr tikko turpretī arī kaut gan tādēļ tā ne tikvien vien ir te vai kamēr ar kā arīdzan jebšu kurpretim ikām tad nav būt biju biji bija esmu esi esam esat es tu viņš viņa mēs jūs";
const PERSIAN: &str = "و در به از که این است را با های برای آن یک شود شده خود ها کرد شد ای تا کند بر بود گفت نیز وی هم کنند دارد ما کرده یا اما باید دو اند هر پس اگر همه نه او آنها بین پیش نیست چه من می";
const POLISH: &str = "a aby ach acz aczkolwiek aj albo ale ależ aż bardziej bardzo bez bo bowiem by byli bym być był była było były będzie będą cali cała cały ci cię co cokolwiek coś czasami czasem czemu czy czyli dla dlaczego dlatego do dobrze gdy gdyż gdzie go i ich ile im inna inne inny ja jak jakaś jakby jaki jako jednak jednakże jego jej jemu jest jestem jeszcze jeśli jeżeli już ją każdy kiedy kierunku kto ktoś która które którego której który których którym którzy ku lub ma mają mam mi mimo między mnie mogą moim może można mu my na nad nam nami nas nasz naszych nawet nic nich nie nigdy nim niż no o obok od około on ona one oni ono oraz pan po pod podczas pomimo ponad ponieważ poza przed przede przedtem przez przy roku również sama się skąd sobie sposób swoje są ta tak taka taki takie także tam te tego tej ten teraz też to tobie toteż trzeba tu twoim twój ty tych tylko tym u w we według wiele więc wszyscy wszystkich wszystkie wszystkim wszystko właśnie z za zapewne zawsze ze znowu znów został żaden że żeby";
const ROMANIAN: &str = "acea această aceasta acest acesta aceste acestea aceşti aici al ale alt alta am ar are aş aș asta astea astăzi asupra au avea avem aveţi aveți azi aţi ați bine ca că care când cât câte câți ce cea ceea cei cel cele cine cînd cît cu cum dacă dar de deci deja deşi deși din dintr dintre doar după ea ei el ele era este eşti ești eu face fără fi fie fiecare fii fost iar în îi îl îmi împotriva in încă îşi își îţi își la le li lîngă lor lui mai mâine mă mea mei mele meu mi mie mult multă mulţi mulți ne nici nimeni noi nostru nu ori o oricare oricine pe pentru peste pînă până poate prea prin să sa săi sale sau său se şi și sînt sint sub sunt suntem sunteţi sunteți ta tăi tale tău te toată toate toți toţi tot totuşi totuși tu un una unde unei unele uneori unor unui unul va vă voi vom vor vostru vreo vreun";
const TURKISH: &str = "acaba altı ama ancak artık asla aslında az bana bazen bazı belki ben bence beni benim beş bile bin bir biri biz bize bizi bizim böyle bu buna bunda bundan bunlar bunu bunun burada çok çünkü da daha de defa değil diğer diye dolayı en gibi göre hala hangi hatta hem henüz hep hepsi her hiç için ile ilgili ise işte itibaren kadar karşın kendi kez ki kim kimse mı mi mu mü nasıl ne neden nedenle nerede niçin niye o olan olarak oldu olduğu olmak olsa on ona onlar onu onun oysa öyle pek rağmen sana sanki sen siz şey şu tarafından tüm üzere var ve veya ya yani yapmak yine yoksa zaten";
const ARABIC: &str = "من ومن منها منه في وفي فيها فيه و ف ثم او أو ب بها به ا أ اى اي أي أى لا ولا الا ألا إلا لكن ما وما كما فما عن مع اذا إذا ان أن إن انها أنها إنها انه أنه إنه بان بأن فان فأن وان وأن وإن التى التي الذى الذي الذين الى الي إلى إلي على عليها عليه اما أما إما ايضا أيضا كل وكل لم ولم لن ولن هى هي هو وهى وهي وهو فهى فهي فهو انت أنت لك لها له هذه هذا تلك ذلك هناك كانت كان يكون تكون وكانت وكان غير بعض قد نحو بين بينما منذ ضمن حيث الان الآن خلال بعد قبل حتى عند عندما لدى جميع";
const HINDI: &str = "के का एक में की है यह और से हैं को पर इस होता कि जो कर मे गया करने किया लिये अपने ने बनी नहीं तो ही या एवं दिया हो इसका था द्वारा हुआ तक साथ करना वाले बाद लिए आप कुछ सकते किसी ये इसके सबसे इसमें थे दो होने वह वे करते बहुत कहा वर्ग कई करें होती अपनी उनके थी यदि हुई जा ना इसे कहते जब होते कोई हुए व न अभी जैसे सभी करता उनकी तरह उस आदि कुल एस रहा इसकी सकता रहे उनका इसी रखें अपना पे उसके";
const BASQUE: &str = "al anitz arabera asko baina bat batean batek bati batzuei batzuek batzuetan batzuk bera beraiek berau berauek bere berori beroriek beste bezala da dago dira ditu du dute edo egin ere eta eurak ez gainera gu gutxi guzti haiei haiek haietan hainbeste hala han handik hango hara hari hark hartan hau hauei hauek hauetan hemen hemendik hemengo hi hona honek honela honetan honi hor hori horiei horiek horietan horko horra horrek horrela horretan horri hortik hura izan ni noiz nola non nondik nongo nor nora ze zein zen zenbait zenbat zer zergatik ziren zituen zu zuek zuen zuten";

const FRENCH_ARTICLES: &[&str] = &["l", "m", "t", "qu", "n", "s", "j", "d", "c", "jusqu", "quoiqu", "lorsqu", "puisqu"];
const ITALIAN_ARTICLES: &[&str] = &[
    "c", "l", "all", "dall", "dell", "nell", "sull", "coll", "pell", "gl", "agl", "dagl", "degl", "negl", "sugl", "un",
    "m", "t", "s", "v", "d",
];
const CATALAN_ARTICLES: &[&str] = &["d", "l", "m", "n", "s", "t"];
const IRISH_ARTICLES: &[&str] = &["d", "m", "b"];

enum Stem {
    Snowball(Algorithm),
    By(fn(&mut String)),
    None,
}

enum Stop {
    Library(Language),
    Words(&'static str),
}

enum Before {
    Nothing,
    Possessive,
    Elision(&'static [&'static str]),
    Apostrophe,
    By(fn(&mut String)),
}

fn parts(language: &str) -> Option<(Before, Stop, Stem)> {
    use Before::{Apostrophe, Elision, Nothing, Possessive};
    use Stem::{By, Snowball};
    use Stop::{Library, Words};
    Some(match language {
        "english" => (Possessive, Library(Language::English), Snowball(Algorithm::Porter)),
        "german" => (Nothing, Library(Language::German), By(light::german)),
        "french" => (Elision(FRENCH_ARTICLES), Library(Language::French), By(light::french)),
        "spanish" => (Nothing, Library(Language::Spanish), By(light::spanish)),
        "italian" => (Elision(ITALIAN_ARTICLES), Library(Language::Italian), By(light::italian)),
        "portuguese" => (Nothing, Library(Language::Portuguese), By(light::portuguese)),
        "dutch" => (Nothing, Library(Language::Dutch), Snowball(Algorithm::DutchPorter)),
        "swedish" => (Nothing, Library(Language::Swedish), Snowball(Algorithm::Swedish)),
        "danish" => (Nothing, Library(Language::Danish), Snowball(Algorithm::Danish)),
        "norwegian" => (Nothing, Library(Language::Norwegian), Snowball(Algorithm::Norwegian)),
        "finnish" => (Nothing, Library(Language::Finnish), Snowball(Algorithm::Finnish)),
        "russian" => (Nothing, Library(Language::Russian), Snowball(Algorithm::Russian)),
        "hungarian" => (Nothing, Library(Language::Hungarian), Snowball(Algorithm::Hungarian)),
        "romanian" => (Nothing, Words(ROMANIAN), Snowball(Algorithm::Romanian)),
        "turkish" => (Apostrophe, Words(TURKISH), Snowball(Algorithm::Turkish)),
        "armenian" => (Nothing, Words(ARMENIAN), Snowball(Algorithm::Armenian)),
        "basque" => (Nothing, Words(BASQUE), Snowball(Algorithm::Basque)),
        "catalan" => (Elision(CATALAN_ARTICLES), Words(CATALAN), Snowball(Algorithm::Catalan)),
        "irish" => (Elision(IRISH_ARTICLES), Words(IRISH), Snowball(Algorithm::Irish)),
        "czech" => (Nothing, Words(CZECH), Snowball(Algorithm::Czech)),
        "polish" => (Nothing, Words(POLISH), Snowball(Algorithm::Polish)),
        "indonesian" => (Nothing, Words(INDONESIAN), Snowball(Algorithm::Indonesian)),
        "hindi" => (Nothing, Words(HINDI), Snowball(Algorithm::Hindi)),
        "arabic" => (Before::By(light::normalize_arabic), Words(ARABIC), Snowball(Algorithm::Arabic)),
        "persian" => (Before::By(light::normalize_persian), Words(PERSIAN), Snowball(Algorithm::Persian)),
        "greek" => (Before::By(light::normalize_greek), Words(GREEK), Stem::None),
        "bulgarian" => (Nothing, Words(BULGARIAN), Stem::None),
        "galician" => (Nothing, Words(GALICIAN), By(light::portuguese)),
        "latvian" => (Nothing, Words(LATVIAN), Stem::None),
        "thai" => (Nothing, Words(""), Stem::None),
        _ => return None,
    })
}

pub(super) fn chain(language: &str, own: Option<&[String]>) -> Option<TextAnalyzer> {
    let (before, stop, stem) = parts(language)?;
    let stop = match (own, stop) {
        (Some(words), _) => StopWordFilter::remove(words.to_vec()),
        (None, Stop::Library(language)) => StopWordFilter::new(language)?,
        (None, Stop::Words(words)) => StopWordFilter::remove(words.split(' ').map(str::to_owned)),
    };
    let chain = TextAnalyzer::builder(Split::lowercase(split::word));
    let chain = match before {
        Before::Nothing => chain.filter(Apply::new(|_| true)).dynamic(),
        Before::Possessive => chain.filter_dynamic(always(possessive)),
        Before::Elision(articles) => chain.filter_dynamic(Apply::new(move |term| {
            elide(term, articles);
            true
        })),
        Before::Apostrophe => chain.filter_dynamic(always(apostrophe)),
        Before::By(change) => chain.filter_dynamic(always(change)),
    };
    let chain = chain.filter_dynamic(stop);
    Some(match stem {
        Stem::Snowball(algorithm) => chain.filter_dynamic(snowball(algorithm)).build(),
        Stem::By(change) => chain.filter_dynamic(always(change)).build(),
        Stem::None => chain.build(),
    })
}

fn always(change: fn(&mut String)) -> Apply {
    Apply::new(move |term| {
        change(term);
        true
    })
}

fn snowball(algorithm: Algorithm) -> Apply {
    let stemmer = frostem::Stemmer::new(algorithm);
    Apply::new(move |term| {
        let stem = stemmer.stem(term);
        if stem.len() != term.len() || stem.as_ref() != term.as_str() {
            *term = stem.into_owned();
        }
        true
    })
}

fn possessive(term: &mut String) {
    for ending in ["'s", "\u{2019}s", "\u{ff07}s"] {
        if let Some(rest) = term.strip_suffix(ending) {
            let length = rest.len();
            return term.truncate(length);
        }
    }
}

fn apostrophe(term: &mut String) {
    if let Some(at) = term.find(['\'', '\u{2019}']) {
        term.truncate(at);
    }
}

fn elide(term: &mut String, articles: &[&str]) {
    if let Some(at) = term.find(['\'', '\u{2019}'])
        && articles.contains(&&term[..at])
    {
        let sign = term[at..].chars().next().map_or(1, char::len_utf8);
        term.drain(..at + sign);
    }
}
